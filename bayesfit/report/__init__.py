"""What people look at: pictures of a result, its HTML report, and exports for other programs."""
