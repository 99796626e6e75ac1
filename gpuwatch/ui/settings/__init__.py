"""What a user can choose and do, as data: preferences, actions, tabs."""
