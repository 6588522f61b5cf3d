"""The wire codec beside kio's and kafka-python's."""
