"""Arguments; each subcommand imports its code when it runs."""
