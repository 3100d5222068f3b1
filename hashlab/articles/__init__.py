"""What articles say, measured again: one file each."""
