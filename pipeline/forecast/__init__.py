"""Says before a build what it would read, reject and write, and what a person should look at."""
