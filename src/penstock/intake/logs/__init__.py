"""Start and end logs of any system, read as recordings: rows → columns → cells → attempts."""
