// Command reference prints docs/kubernetes-api.md: what users write of aliquot.dev, from the definitions that are installed. In host/kube:
//
//	go run ./reference > ../../docs/kubernetes-api.md
package main

import (
	"fmt"
	"os"
)

func main() {
	var whole []byte
	all, err := definitions()
	if err == nil {
		whole, err = page(all)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "reference:", err)
		os.Exit(1)
	}
	os.Stdout.Write(whole)
}
