package cli

import (
	"encoding"
	"errors"
	"fmt"

	"github.com/spf13/pflag"

	"github.com/aliquot-dev/aliquot/api"
)

// shapeFlags are the flags of what each process of a workload, or of a role of it, asks for.
type shapeFlags struct {
	gpu, memory, cpu, hostMemory string
	model, replicas              string
	devices                      int
	weight                       int32
	given                        func(flag string) bool
}

func (f *shapeFlags) define(flags *pflag.FlagSet) {
	f.given = flags.Changed
	// Everything from the first word that is no flag belongs to the program.
	flags.SetInterspersed(false)
	defineShare(flags, &f.gpu, &f.memory, &f.weight)
	flags.IntVar(&f.devices, "devices", 1, "how many devices, each with this share")
	flags.StringVar(&f.model, "model", "", "only devices of this model: a name that aliquot devices prints, or a part that fits one alone")
	flags.StringVar(&f.cpu, "cpu", "", "limit in cores, 2 or 0.5")
	flags.StringVar(&f.hostMemory, "host-memory", "", "limit of the machine's memory, 8Gi")
}

// defineReplicas defines the flag of what has several processes.
func (f *shapeFlags) defineReplicas(flags *pflag.FlagSet) {
	flags.StringVar(&f.replicas, "replicas", "", "how many processes of it run, each with this share: 4, or 2..8 to start with 2 and have up to 8 while nobody who waits could use what they hold")
}

// shape is what the flags say. What is not said stays empty.
func (f *shapeFlags) shape() (api.Role, error) {
	out := api.Role{Devices: f.devices, Model: f.model, Share: api.Share{Weight: f.weight}}
	for _, one := range []struct {
		flag, text string
		into       encoding.TextUnmarshaler
	}{
		{"--gpu", f.gpu, &out.Share.Compute},
		{"--mem", f.memory, &out.Share.Memory},
		{"--replicas", f.replicas, &out.Replicas},
		{"--host-memory", f.hostMemory, &out.Memory},
	} {
		if err := parse(one.flag, one.text, one.into); err != nil {
			return out, err
		}
	}
	if err := errors.Join(bareMemory(f.memory), bare("--host-memory", f.hostMemory, api.LeastHostMemory, "program takes")); err != nil {
		return out, err
	}
	var err error
	if out.CPU, err = cores(f.cpu); err != nil {
		return out, err
	}
	return out, f.nothing(out)
}

// empties are the flags that were given nothing, as by a variable of a shell that is not set, and what to write instead: they would mean the default, and
// for compute that is a whole device.
func (f *shapeFlags) empties() []emptied {
	return []emptied{
		{"gpu", f.gpu, "0.25, or leave it out for a whole device"},
		{"mem", f.memory, "4Gi, or leave it out for the same part as the compute floor"},
		{"replicas", f.replicas, "4 or 2..8, or leave it out for one"},
		{"model", f.model, "a model that `aliquot devices` names, or leave it out for any"},
		{"cpu", f.cpu, "2 or 0.5, or leave it out for no limit"},
		{"host-memory", f.hostMemory, "8Gi, or leave it out for no limit"},
	}
}

// emptied is a flag with its value, and what to write where that is empty.
type emptied struct{ flag, value, instead string }

// refuseEmpty refuses flags that were given nothing.
func (f *shapeFlags) refuseEmpty(flags []emptied) error {
	for _, one := range flags {
		if one.value == "" && f.given(one.flag) {
			return emptyFlag(one.flag, one.instead)
		}
	}
	return nil
}

// nothing refuses a zero that was written: as a value it would mean the default, and whoever writes it means nothing.
func (f *shapeFlags) nothing(shape api.Role) error {
	switch {
	case f.given("devices") && shape.Devices <= 0:
		return usagef("--devices %d: a share of no device is a share of nothing: give 1 to %d, or leave it out for 1", shape.Devices, api.MaxDevices)
	case f.given("host-memory") && shape.Memory == 0:
		return usagef("--host-memory %s: a program without any memory does not run: give for example 8Gi, or leave it out for no limit", f.hostMemory)
	case f.given("weight") && f.weight <= 0:
		return noWeight(f.weight)
	}
	return nil
}

const roleAdvice = "write its name, the flags of its share and, where it is another, its program: --role 'worker --replicas 4 --gpu 0.5 --mem 4Gi -- ./worker'"

// parseRole reads the text of a --role.
func parseRole(text string) (api.Role, error) {
	words, err := shellWords(text)
	switch {
	case err != nil:
		return api.Role{}, usagef("--role %s: %w", text, err)
	case len(words) == 0 || words[0] == "" || words[0][0] == '-':
		return api.Role{}, usagef("--role %s: it has no name: %s", text, roleAdvice)
	}
	var shape shapeFlags
	flags := pflag.NewFlagSet(words[0], pflag.ContinueOnError)
	flags.Usage = func() {}
	shape.define(flags)
	shape.defineReplicas(flags)
	refuse := func(err error) (api.Role, error) {
		return api.Role{}, &usageError{fmt.Errorf("--role %s: %w", words[0], err)}
	}
	if err := flags.Parse(words[1:]); err != nil {
		return refuse(fmt.Errorf("%v: %s", err, roleAdvice)) // not a wish for help: that would be of the command
	}
	if ours, _ := oursAmong(flags, flags.Args()); len(ours) > 0 && flags.ArgsLenAtDash() < 0 {
		return refuse(fmt.Errorf("%s stands after the program %s: write -- before the program, and what is for the role before that", ours[0], flags.Arg(0)))
	}
	if err := shape.refuseEmpty(shape.empties()); err != nil {
		return refuse(err)
	}
	role, err := shape.shape()
	if err != nil {
		return refuse(err)
	}
	role.Name, role.Command = words[0], flags.Args()
	return role, nil
}
