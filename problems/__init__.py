"""What is asked: graphs, clusters, plans, formal problems and their exact meaning."""
