SAYS = "its neighbour"
