"""Other people's trainers, watched: their columns go to a run of ours while they train, and are audited there.

watch.py        mingce.watch and mingce.unwatch, and which trainers they know
wrapping.py     methods of a host's object replaced for a while; what of ours fails is never raised there
recorder.py     the queue between the host's thread and ours: never blocks, drops and counts
writer.py       our thread's work: a step's batch as a dump, its audit, the ledger's file, the lines of the logs
trainers.py     what is asked of any trainer: its class, its configuration, its tokenizer
trl_*.py …      a trainer each: how to recognise it, its settings under our names, what to wrap
verl_plugin.py  what verl loads by itself, for MINGCE_WATCH=DIR
"""
