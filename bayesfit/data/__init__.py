"""What was measured: curves and their checks, averages, stacks, simulation, and what a file was taken for."""
