"""Model room: graphs, clusters, plans, schedules, timelines: data and their meaning."""
