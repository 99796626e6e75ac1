"""The first frame, drawn before Textual is loaded, and the driver that takes over its terminal."""
