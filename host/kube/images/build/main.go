// Command build builds aliquot-kube and makes its image, which has the native parts inside, and that of the example programs, without a Docker
// daemon:
//
//	go run ./images/build --out ../../build/images --version "$(git describe --always --dirty)"
//	ctr --namespace k8s.io images import ../../build/images/aliquot-kube.tar
//	helm install aliquot ../../deploy/chart --values ../../build/images/values.yaml
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"syscall"

	"github.com/aliquot-dev/aliquot/host/kube/deploy"
	"github.com/aliquot-dev/aliquot/host/kube/images"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := build(ctx, os.Args[1:]); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			return
		}
		fmt.Fprintln(os.Stderr, "build images:", err)
		os.Exit(1)
	}
}

func build(ctx context.Context, args []string) error {
	options := flag.NewFlagSet("build", flag.ContinueOnError)
	out := options.String("out", "../../build/images", "folder of the images' tars")
	folder := options.String("chart", "../../deploy/chart", "the chart's folder, which says what the image is called")
	version := options.String("version", "", "the version that the programs say they are, and the image's tag; of sources that are in no commit (…-dirty) the tag says what is in it, too")
	dist := options.String("native", "../../native/dist", "the native parts, as `make native` builds them: what they are linked against is put into the images")
	examples := options.String("examples", "../../build/examples", "the example programs, as `make examples` builds them")
	if err := options.Parse(args); err != nil {
		return err
	}
	if options.NArg() > 0 {
		return fmt.Errorf("%q is not understood; it takes options alone, see --help", options.Arg(0))
	}
	if *version == "" {
		return errors.New("nobody said which version this is; give --version, as `git describe --always --dirty` says it")
	}
	chart, err := deploy.Read(*folder)
	if err != nil {
		return err
	}
	if *out, err = filepath.Abs(*out); err != nil { // it is told of to who may be in another folder
		return err
	}
	if err := os.MkdirAll(*out, 0o755); err != nil {
		return err
	}
	program := filepath.Join(*out, "aliquot-kube")
	// The folder is not in the program, so that the same sources give the same bytes.
	compile := exec.CommandContext(ctx, "go", "build", "-trimpath", "-buildvcs=false", "-ldflags", "-s -w -X main.version="+*version, "-o", *out+"/",
		"github.com/aliquot-dev/aliquot/host/kube/cmd/aliquot-kube", "github.com/aliquot-dev/aliquot/host/kube/cmd/aliquot-cover")
	compile.Stderr = os.Stderr
	if err := compile.Run(); err != nil {
		return fmt.Errorf("compile aliquot-kube and aliquot-cover: %w", err)
	}
	image, err := images.Kube("", program, *dist, filepath.Join(*out, "aliquot-cover"))
	if err != nil {
		return err
	}
	tag, err := images.Tag(image, *version)
	if err != nil {
		return err
	}
	image.Name = chart.ImageOf(tag)
	demo, err := images.Examples(*examples, *dist)
	if err != nil {
		return err
	}
	if err := write(image, program+".tar"); err != nil {
		return err
	}
	if err := write(demo, filepath.Join(*out, "aliquot-examples.tar")); err != nil {
		return err
	}
	values, err := images.WriteValues(*out, tag)
	if err != nil {
		return err
	}
	fmt.Printf("the chart runs it with --values %s\n", values)
	return nil
}

// write writes an image's tar, whole or not at all, and says where it is.
func write(image images.Image, archive string) error {
	file, err := os.Create(archive + ".new")
	if err != nil {
		return err
	}
	digest, err := image.Write(file)
	if err = errors.Join(err, file.Close()); err != nil {
		return errors.Join(err, os.Remove(file.Name()))
	}
	if err := os.Rename(file.Name(), archive); err != nil {
		return err
	}
	fmt.Printf("%s\n  is in %s, digest %s\n", image.Name, archive, digest)
	return nil
}
