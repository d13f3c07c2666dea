"""What happens where a manifest says nothing, and what it does where it says something: one function a block of the run."""
