"""Says before a build what it would read, reject and write, how long that takes, and what a person should look at."""
