"""One machine being watched, without a screen: what the dashboard and the commands share."""
