"""The command line. Each subcommand imports its code when it runs."""
