"""What another config would have brought: a recorded run played again through the real scheduler."""
