"""Cubes that tumble, as PhysX moves them: contacts of boxes turned in every way, and their solver.

    touch    where two boxes touch: the axis that parts them, and up to four points
    patches  a contact as rows: a normal at each point, friction at one or two of them
    solve    sequential impulses: sweeps over the rows of all contacts

A moving cube's inertia is the same about every axis, so no matrix is needed. One step is the rule
of `upright.solve`, with PhysX's numbers of sweeps; nothing is carried from one step to the next but
poses and velocities. `scenes.pyramids.bricks` has a whole one.

Source: the rules of PhysX 4.1.2 as measured for `ragdoll`; where boxes touch is computed as
textbooks do it, not as PhysX does.
"""
