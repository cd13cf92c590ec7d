"""Reports and plots of finished runs, and the planner page."""
