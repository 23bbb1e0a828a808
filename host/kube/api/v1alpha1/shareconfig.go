// Package v1alpha1 is what users of Kubernetes write and see: the objects of aliquot.dev/v1alpha1. It holds and checks them, and does
// nothing with them.
package v1alpha1

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/aliquot-dev/aliquot/api"
)

// Group and version of all objects here, as they stand in their apiVersion.
const APIVersion = "aliquot.dev/v1alpha1"

// ShareConfigKind is the kind of a ShareConfig.
const ShareConfigKind = "ShareConfig"

// ShareConfig is what a ResourceClaim says about a share beside its floors, in an opaque configuration for the driver. The floors are
// not here: they are the capacity that the claim requests.
type ShareConfig struct {
	APIVersion string `json:"apiVersion"` // always aliquot.dev/v1alpha1
	Kind       string `json:"kind"`       // always ShareConfig

	// Ceiling is what may never be passed; at least the floor. What is not given is the floor: nothing is borrowed.
	Ceiling Ceiling `json:"ceiling,omitzero"`

	// Weight divides what is lent among those who want it, 1 to 1000000; left out: the floor in thousandths of a device, at least 1.
	Weight int32 `json:"weight,omitempty"`

	// Class is what the work is: interactive, inference, training or batch. Inference and interactive go first within their floors. Left out: batch.
	Class api.Class `json:"class,omitempty"`
}

// Ceiling is the upper end of a share.
type Ceiling struct {
	Compute api.Milli  `json:"compute,omitzero"` // of a device, as "0.80", at most "1.00"; left out: the floor
	Memory  api.Amount `json:"memory,omitzero"`  // in bytes, as "20Gi", or as a part of the device, "50%"; left out: the floor
}

// ParseShareConfig reads a ShareConfig strictly: a field that it does not know is an error, because a ceiling misspelt would not hold.
func ParseShareConfig(raw []byte) (ShareConfig, error) {
	var c ShareConfig
	decoder := json.NewDecoder(bytes.NewReader(raw))
	decoder.DisallowUnknownFields()
	err := decoder.Decode(&c)
	if err == nil {
		if _, more := decoder.Token(); !errors.Is(more, io.EOF) {
			err = errors.New("more follows after its end")
		}
	}
	if err != nil {
		return ShareConfig{}, fmt.Errorf("read a ShareConfig: %w", err)
	}
	return c, c.validate()
}

func (c ShareConfig) validate() error {
	switch {
	case c.APIVersion != APIVersion || c.Kind != ShareConfigKind:
		return fmt.Errorf("read a ShareConfig: it is a %q of %q; write kind: %s and apiVersion: %s", c.Kind, c.APIVersion, ShareConfigKind, APIVersion)
	case c.Ceiling.Compute > api.WholeDevice:
		return fmt.Errorf("read a ShareConfig: a compute ceiling of %s; it is at most a whole device, 1.00", c.Ceiling.Compute)
	case c.Weight < 0 || c.Weight > api.MaxWeight:
		return fmt.Errorf("read a ShareConfig: a weight of %d; it must be 1 to %d, or left out", c.Weight, api.MaxWeight)
	}
	switch c.Class {
	case "", api.Interactive, api.Inference, api.Training, api.Batch:
		return nil
	}
	return fmt.Errorf("read a ShareConfig: class %q; it is one of interactive, inference, training and batch", c.Class)
}
