"""What every log needs, whatever stores it. Pure: no clock, no random number, no file.

Producer state, leader epochs and aborted transactions belong to a partition's owner; names, indexes, rules and
the recovery walk belong to a storage that keeps Kafka's files. Time, offsets and bytes come in as arguments.
"""
