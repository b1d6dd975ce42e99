"""Studies: who beats whom, how well a policy can be exploited, and what several seeds show."""
