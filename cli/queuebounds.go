package cli

import (
	"context"
	"slices"
	"strings"

	"github.com/spf13/pflag"

	"github.com/aliquot-dev/aliquot/api"
	"github.com/aliquot-dev/aliquot/cli/client"
	"github.com/aliquot-dev/aliquot/host/policy"
)

// boundWords are the flags for amounts of a queue. Policy files have the same words.
var boundWords = []string{"quota", "quota-mem", "quota-shares", "limit", "limit-mem", "limit-shares"}

// boundFlags are the flags of `queue set` for amounts and weights, overall and on models of device.
type boundFlags struct {
	amounts [6][]string // as boundWords
	weights [4][]string // as weightWords
}

// weightWords are the flags for weights, of all resources and of single ones, as policy files have them.
var weightWords = []string{"weight", "weight-gpu", "weight-mem", "weight-shares"}

// define defines them.
func (f *boundFlags) define(flags *pflag.FlagSet) {
	for i, usage := range []string{
		"devices that its workloads may hold as floors, an `amount` such as 2, 0.5 or none; of one model 2@H200, in a --quota of its own",
		"device memory that its workloads may hold as floors, an `amount` such as 80Gi, 80Gi@H200 or none (default)",
		"how many shares, each on one device, its workloads may hold, an `amount` such as 8, 8@H200 or none (default)",
		"devices that even preemptible work may not pass, an `amount` such as 4, 4@H200 or none",
		"device memory that even preemptible work may not pass, an `amount` such as 160Gi, 160Gi@H200 or none (default)",
		"how many shares even preemptible work may not pass, an `amount` such as 16, 16@H200 or none (default)",
	} {
		flags.StringArrayVar(&f.amounts[i], boundWords[i], nil, usage)
	}
	flags.StringArrayVar(&f.weights[0], "weight", nil, "its part of what is over all quotas, beside that of its neighbours, a `number` such as 3 (default: 1); on devices of one model 3@H200 or none@H200 (default: as overall)")
	for i, of := range []string{"compute", "device memory", "shares"} {
		flags.StringArrayVar(&f.weights[i+1], weightWords[i+1], nil, "its weight for "+of+" alone, a `number` such as 3, 3@H200 or none@H200; 0 is that of --weight (default)")
	}
}

// apply changes what was given in a queue's specification; the rest stays. models are those of all devices that there are.
func (f *boundFlags) apply(spec *api.QueueSpec, models []string) error {
	for i, word := range boundWords {
		for _, text := range f.amounts[i] {
			value, model, ofModel := strings.Cut(text, "@")
			if value == "" || ofModel && model == "" {
				return usagef("--%s %s: write an amount, 2 or none, or one of a model, 2@H200", word, text)
			}
			if strings.HasSuffix(word, "-mem") {
				if err := bare("--"+word, value, api.LeastMemory, "share takes"); err != nil {
					return err
				}
			}
			if err := policy.SetBound(spec, word, wholeModel(model, models), value); err != nil {
				return usagef("--%s %s: %w", word, text, err)
			}
		}
	}
	for i, word := range weightWords {
		for _, text := range f.weights[i] {
			value, model, ofModel := strings.Cut(text, "@")
			switch {
			case value == "" || ofModel && model == "":
				return usagef("--%s %s: write a weight, 3, or one on a model, 3@H200", word, text)
			case i > 0 && !ofModel && value == "0":
				value = "none"
			}
			if err := policy.SetBound(spec, word, wholeModel(model, models), value); err != nil {
				return usagef("--%s %s: %w", word, text, err)
			}
		}
	}
	return nil
}

// wholeModel is the name of a model of which a part may have been given. One that is not known, or not which, is the server's to refuse.
func wholeModel(asked string, known []string) string {
	if like := policy.Model(asked, known); len(like) == 1 {
		return like[0]
	}
	return asked
}

// modelsKnown are the models that bounds may be about: those of all devices, and those of which the queue has bounds. Nobody is asked where no
// model is given.
func (f *boundFlags) modelsKnown(ctx context.Context, server *client.Client, spec *api.QueueSpec) ([]string, error) {
	if !f.ofModels() {
		return nil, nil
	}
	devices, err := server.Devices(ctx)
	if err != nil {
		return nil, err
	}
	var known []string
	for _, device := range devices {
		known = append(known, device.Model)
	}
	for _, m := range spec.Models {
		known = append(known, m.Model)
	}
	return known, nil
}

// beyondTable says that something was given that the table of queues has no column for.
func beyondTable(given func(flag string) bool, f *boundFlags) bool {
	return slices.ContainsFunc(slices.Concat(boundWords, weightWords), func(word string) bool {
		return strings.Contains(word, "-") && given(word)
	}) || f.ofModels()
}

// ofModels says that something was given that is of a model.
func (f *boundFlags) ofModels() bool {
	return slices.ContainsFunc(slices.Concat(append(f.amounts[:], f.weights[:]...)...), func(text string) bool { return strings.Contains(text, "@") })
}
