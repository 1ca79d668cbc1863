// Command agent puts elasticdl-agent into elasticdl, as `make build` and `make release` do; see
// [image.AddAgent].
package main

import (
	"fmt"
	"os"

	"github.com/elasticdl/elasticdl/trainer/runtime/image"
)

func main() {
	if len(os.Args) != 4 {
		fmt.Fprintln(os.Stderr, "usage: agent ELASTICDL AGENT OUT")
		os.Exit(2)
	}
	if err := image.AddAgent(os.Args[1], os.Args[2], os.Args[3]); err != nil {
		fmt.Fprintln(os.Stderr, "agent:", err)
		os.Exit(1)
	}
}
