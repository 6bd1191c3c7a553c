"""What a run will need, on paper: memory, traffic and time of every role on a cluster, before anything is started.

    units     80GB, 400Gb/s            shape, families, presets    a model as a list of weights, from its config.json
    job       a recipe as work         roles                       the models of a step, sharded the FSDP2 way
    hardware  GPUs and their links     memory, activations         bytes per rank, by role and by stage
    fit       what goes into a GPU     traffic, speed, growth      bytes and seconds per step, and over more nodes

Arithmetic without torch, but for a config.json, which transformers builds on the meta device (families).
docs/en/scaling.md says how it was checked.
"""
