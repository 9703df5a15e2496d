"""The warm pool: which containers there should be, and who sees to it in the process that dispatches."""
