"""What rebuilds the paper: experiments, tables, statistics, theory."""
