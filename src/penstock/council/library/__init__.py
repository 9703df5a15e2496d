"""What members may read: documents cut into passages, two indexes of them, and the search in both."""
