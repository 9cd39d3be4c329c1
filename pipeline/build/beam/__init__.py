"""The only folder that imports Apache Beam."""
