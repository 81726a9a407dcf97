"""The comparison with the other engines of the same server; bench/run is the program."""
