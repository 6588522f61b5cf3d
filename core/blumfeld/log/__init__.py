"""The rules of a log, independent of its storage. Pure: no clock, no random number, no file.

Producer state, leader epochs and aborted transactions serve the owner of a partition. File names, indexes,
rules and the recovery walk serve a storage that keeps Kafka's files. Time, offsets and bytes come in as
arguments.
"""
