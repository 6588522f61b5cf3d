"""Reading the archive back: views, exports, plots, replay."""
