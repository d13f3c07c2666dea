"""What this machine has, and how fast its disks read."""
