package testcluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"google.golang.org/grpc"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/aliquot-dev/aliquot/host/kube/images"
)

// Image is a container image, made of files of this machine.
type Image = images.Image

// Load makes the image and gives it to the node.
func (c *Cluster) Load(ctx context.Context, image Image) error {
	archive := c.state.path("images", strings.NewReplacer("/", "-", ":", "-").Replace(image.Name)+".tar")
	file, err := os.Create(archive)
	if err != nil {
		return fmt.Errorf("load image %s: %w", image.Name, err)
	}
	_, err = image.Write(file)
	if err := errors.Join(err, file.Close()); err != nil {
		return fmt.Errorf("load image %s: %w", image.Name, err)
	}
	return errors.Join(c.Import(ctx, archive, image.Name), os.Remove(archive))
}

// Import gives the node an image that was made before, from its tar.
func (c *Cluster) Import(ctx context.Context, archive, name string) error {
	if err := run(ctx, "", nil, c.programs["ctr"], "--address", c.state.containerd(), "--namespace", "k8s.io", "images", "import", archive); err != nil {
		return fmt.Errorf("load image %s: %w", name, err)
	}
	return c.awaitImage(ctx, name)
}

// awaitImage waits until kubelet would find the image: containerd tells that side of it a moment later.
func (c *Cluster) awaitImage(ctx context.Context, name string) error {
	look := time.NewTicker(often)
	defer look.Stop()
	for {
		found := false
		err := c.runtime(func(connection grpc.ClientConnInterface) error {
			answer, err := cri.NewImageServiceClient(connection).ImageStatus(ctx, &cri.ImageStatusRequest{Image: &cri.ImageSpec{Image: name}})
			found = err == nil && answer.GetImage() != nil
			return err
		})
		if err != nil || found {
			return err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("image %s was imported and is not there: %w", name, ctx.Err())
		case <-look.C:
		}
	}
}
