package main

import "github.com/spf13/cobra"

func datasetCommand() *cobra.Command {
	return laterCommand("dataset")
}
