// Command pod is the program of the test cluster's own images: it waits to be told to end, as a sandbox's first process must; or says
// something and ends (`say WORDS`); or runs a program with nothing in its environment (`cleared PROGRAM ARGUMENTS`); or says of each file whether
// it may be opened for writing, and ends (`opens FILES`); or makes a device file and says whether it may be opened (`makes MAJOR MINOR`); or notes in its
// name that it was told to end, `told`, and does not (`stays`).
package main

import (
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"
)

func main() {
	switch args := os.Args[1:]; {
	case len(args) > 0 && args[0] == "say":
		fmt.Println(strings.Join(args[1:], " "))
	case len(args) > 1 && args[0] == "cleared":
		fmt.Fprintln(os.Stderr, "pod:", args[1], syscall.Exec(args[1], args[1:], nil))
		os.Exit(127)
	case len(args) > 0 && args[0] == "opens":
		for _, name := range args[1:] {
			says := "opened"
			file, err := os.OpenFile(name, os.O_RDWR, 0)
			if err != nil {
				says = errors.Unwrap(err).Error()
			}
			_ = file.Close()
			fmt.Printf("%s: %s\n", name, says)
		}
	case len(args) == 3 && args[0] == "makes":
		says, of := "made", [2]int{}
		_, err := fmt.Sscan(args[1]+" "+args[2], &of[0], &of[1])
		if err = errors.Join(err, syscall.Mknod("/made", syscall.S_IFCHR|0o666, of[0]<<8|of[1])); err != nil {
			says = "not made"
		}
		file, err := os.OpenFile("/made", os.O_RDWR, 0)
		if err != nil {
			says += ", " + errors.Unwrap(err).Error()
		}
		_ = file.Close()
		fmt.Printf("%s:%s: %s\n", args[1], args[2], says)
	case len(args) > 0 && args[0] == "stays":
		told := make(chan os.Signal, 1)
		signal.Notify(told, syscall.SIGTERM)
		<-told
		if err := os.WriteFile("/proc/self/comm", []byte("told"), 0o644); err != nil {
			fmt.Fprintln(os.Stderr, "pod:", err)
			os.Exit(1)
		}
		select {} // until it is killed
	default:
		told := make(chan os.Signal, 1)
		signal.Notify(told, syscall.SIGTERM, syscall.SIGINT)
		<-told
	}
}
