"""What every room needs and what knows nothing of statistics: errors, files, devices, arrays."""
