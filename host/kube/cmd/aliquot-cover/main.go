// Command aliquot-cover is what container runtimes run for each container with a share before its program begins: it gives the share's pages to the user that the
// container runs as, and lays the shim over a driver that the image brings itself. It is small, since containers wait for it.
package main

import (
	"fmt"
	"os"

	"github.com/aliquot-dev/aliquot/host/kube/cover"
)

func main() {
	order, err := cover.ParseOrder(os.Args[1:])
	if err == nil {
		err = cover.Run(os.Stdin, order)
	}
	if err != nil { // which kubelet shows as an event of the pod
		fmt.Fprintln(os.Stderr, "aliquot:", err)
		os.Exit(1)
	}
}
