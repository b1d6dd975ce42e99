"""What a command says, apart from how far it is."""


def without_progress(text: str) -> list[str]:
    """The lines of standard error that Touchline ends with.

    On a busy machine lines of progress come between them; under Wine, onnxruntime's reader of the
    processor says that Wine does not answer it.
    """
    others = (": starting, ", "Error in cpuinfo: ")
    return [line for line in text.splitlines() if not any(o in line for o in others)]
