"""What experiments take: counted beforehand, and the speed of this machine. Nothing here imports torch."""
