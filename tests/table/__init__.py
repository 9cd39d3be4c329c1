"""Every kind of feature by every way that its values go: the cases by family, the ways, and the page made of both."""
