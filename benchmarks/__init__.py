"""Scripts that measure; a package, so that tests find it beside others of this name."""
