SAYS = "what was beside it"
