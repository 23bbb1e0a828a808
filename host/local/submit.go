package local

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/aliquot-dev/aliquot/api"
	"github.com/aliquot-dev/aliquot/engine"
	"github.com/aliquot-dev/aliquot/host/advice"
	"github.com/aliquot-dev/aliquot/host/local/internal/exact"
	"github.com/aliquot-dev/aliquot/host/local/supervise"
	"github.com/aliquot-dev/aliquot/host/policy"
	"github.com/aliquot-dev/aliquot/server"
)

// Submit takes a workload in, or refuses it and changes nothing. It returns as soon as the workload is stored.
func (h *Host) Submit(ctx context.Context, who server.Caller, spec api.WorkloadSpec) (api.Workload, error) {
	programs, as, err := h.admit(who, &spec, true)
	if err != nil {
		return api.Workload{}, refusal(err)
	}
	given := api.Workload{
		UID: newUID(), User: who.Name, UserID: who.UID, Spec: spec,
		Status: api.WorkloadStatus{Phase: api.Waiting, Submitted: h.Now().UTC()},
	}
	given.Status.Notes = h.limitsNotHeld(given) // now, while whoever asks is there to read it
	kept := keep{Program: programs[""], User: as}
	if delete(programs, ""); len(spec.Roles) > 0 {
		kept.Programs = programs
	}
	take := &intake{check: func() (*work, error) {
		w, err := h.check(given, kept)
		if err == nil {
			h.seq++
		}
		return w, err
	}}
	if err := h.ask(ctx, message{intake: take}); err != nil {
		return api.Workload{}, err
	}
	return take.taken, nil
}

// limitsNotHeld says which limits that were asked for this machine does not hold.
func (h *Host) limitsNotHeld(w api.Workload) (notes []string) {
	for _, spec := range w.Spec.EachRole() {
		if err := h.groups.Try(w.UID, limitsOf(spec)); err != nil {
			if note := notHeld(spec, err); !slices.Contains(notes, note) {
				notes = append(notes, note)
			}
		}
	}
	return notes
}

// admit fills in a submission's defaults, refuses what is wrong with it whatever the state and, with program, finds those of its own processes, by no
// name and as that of main, and of each of its roles.
func (h *Host) admit(who server.Caller, spec *api.WorkloadSpec, program bool) (paths map[string]exact.Text, as *supervise.User, err error) {
	*spec = spec.Default()
	if err := spec.Validate(); err != nil {
		return nil, nil, err
	}
	if as, err = h.identity(who.UID); err != nil || !program {
		return nil, as, err
	}
	if as != nil { // looking at files of a user may take for ever
		if !h.opened.take(who.UID) {
			return nil, nil, refuse(api.CodeUnavailable, "%s has %d requests and connections under way: submit this when some have ended", who.Name, openLimit)
		}
		defer h.opened.give(who.UID)
	}
	paths = map[string]exact.Text{}
	for role, one := range spec.EachRole() {
		path, err := findProgram(one, as)
		if err != nil {
			return nil, nil, inRole(role, err)
		}
		paths[role] = exact.Text(path)
	}
	paths[api.MainRole] = paths[""] // as it is known to those of other roles
	return paths, as, nil
}

// check makes a submission of what was given, or refuses it as things are.
func (h *Host) check(given api.Workload, kept keep) (*work, error) {
	one := given
	if err := h.checkName(&one); err != nil {
		return nil, err
	}
	if err := h.nameModel(&one.Spec.Model); err != nil {
		return nil, err
	}
	one.Spec.Roles = slices.Clone(one.Spec.Roles)
	for i := range one.Spec.Roles {
		r := &one.Spec.Roles[i]
		if err := h.nameModel(&r.Model); err != nil {
			return nil, inRole(r.Name, err)
		}
	}
	w := newWork(h.seq+1, one, kept)
	if err := h.checkFit(w); err != nil {
		if given.Spec.Name == "" { // nobody has seen the name that was made up
			err = refuse(codeIn(err), "%s", strings.ReplaceAll(err.Error(), "workload "+one.Spec.Name, "the workload"))
		}
		return nil, err
	}
	return w, nil
}

// checkName gives a workload without a name one, and refuses one that another live workload has.
func (h *Host) checkName(one *api.Workload) error {
	if one.Spec.Name == "" {
		one.Spec.Name = h.newName(one.Spec.Command[0])
		return nil
	}
	if other := h.names[one.Spec.Name]; other != nil {
		return refuse(api.CodeConflict, "a workload named %s lives already (%s): choose another name, or stop that one", one.Spec.Name, other.now.Status.Phase)
	}
	return nil
}

// nameModel puts a model's whole name where a part of it was given, or other letters in size, or the words that `aliquot devices`
// prints behind the name of a simulated one. A part that fits several models is refused; one that fits none stays as it is, and is
// the engine's to refuse.
func (h *Host) nameModel(model *string) error {
	like := policy.Model(*model, h.models())
	if len(like) > 1 {
		return api.Invalid("a device of model %s was asked for, and that is a part of several names: write one of them, %s", *model, strings.Join(like, " or "))
	}
	if len(like) == 1 {
		*model = like[0]
	}
	return nil
}

// models are the models of the devices.
func (h *Host) models() []string {
	var all []string
	for _, device := range h.devices {
		all = append(all, device.Model)
	}
	return all
}

// checkFit refuses what could never run here: an unknown queue, more than any device has; and a priority that its user may not give.
func (h *Host) checkFit(w *work) error {
	spec := w.now.Spec
	for role, one := range spec.EachRole() {
		if err := checkMachine(one, h.machine); err != nil {
			return inRole(role, err)
		}
	}
	queues := h.engine.Queues()
	at := slices.IndexFunc(queues, func(queue api.Queue) bool { return queue.Name == spec.Queue })
	if at < 0 {
		return refuse(api.CodeNotFound, "there is no queue %s: see `aliquot queue list`, or make it with `aliquot queue set %s`", spec.Queue, spec.Queue)
	}
	if err := checkDate(spec.PriorityUntil, h.Now()); err != nil {
		return err
	}
	if most, asked := queues[at].MaxPriority, max(spec.Priority, spec.PriorityAfter); asked > most && !h.rules(w.now.UserID) {
		return refuse(api.CodeForbidden, "priority %d was asked for, and in queue %s users may give at most %d: ask for that or less, or have root raise it with `aliquot queue set %s --max-priority %d`",
			asked, spec.Queue, most, spec.Queue, asked)
	}
	if err := boundRun(w, queues); err != nil {
		return err
	}
	asked := engineWorkload(w)
	asked.ID = spec.Name
	if err := h.engine.Check(asked); err != nil {
		return api.Invalid("%s", err)
	}
	for role, one := range spec.EachRole() {
		if err := h.checkCeiling(one.Share.Memory, one.Model); err != nil {
			return inRole(role, err)
		}
	}
	if err := h.checkQuota(asked); err != nil {
		return api.Invalid("%s", err)
	}
	return h.checkRoles(asked)
}

// checkRoles refuses roles that would not fit together on all devices, were these empty. Where some are out of service, or a policy may let it have
// others at another time, it waits for that.
func (h *Host) checkRoles(asked engine.Workload) error {
	if out, _ := h.outOfService(); len(asked.Roles) == 0 || out != "" || h.ruling.policy != nil {
		return nil
	}
	if h.engine.Fits(asked) {
		return nil
	}
	_, news := h.heldNow()
	if why := h.engine.PlanSubmit(news, asked).Why; why.Code == engine.WhyNever {
		return api.Invalid("%s", strings.Replace(why.Message, "nothing that may be used now", "no devices of this server", 1)+"; ask for less, or for fewer processes")
	}
	return nil
}

// boundRun holds a workload to how long its queue, and those above that, let work run; it is told the bound by which it ends.
func boundRun(w *work, queues []api.Queue) error {
	limit := &w.now.Spec.TimeLimit
	asked, note := *limit > 0, ""
	for name := w.now.Spec.Queue; name != ""; {
		at := slices.IndexFunc(queues, func(queue api.Queue) bool { return queue.Name == name })
		queue := &queues[at] // a queue's parent is there
		if longest := queue.LongestRun; asked && longest > 0 && *limit > longest {
			return api.Invalid("a time limit of %s was asked for, and work in queue %s may run for %s at most: ask for that or less", *limit, name, longest)
		} else if longest > 0 && (*limit == 0 || *limit > longest) {
			*limit = longest
			note = fmt.Sprintf("queue %s lets work run for %s at most: it ends then", name, longest)
		}
		name = queue.Parent
	}
	if note != "" {
		w.now.Status.Notes = append(slices.Clip(w.now.Status.Notes), note)
	}
	return nil
}

// checkCeiling refuses a memory ceiling of more than any device has that a workload may use: nobody is to believe that he has it.
func (h *Host) checkCeiling(memory api.Memory, model string) error {
	most := api.Bytes(0)
	for _, device := range h.devices {
		if model == "" || device.Model == model {
			most = max(most, device.Memory)
		}
	}
	if asked := memory.Ceiling.Bytes; most > 0 && asked > most {
		return api.Invalid("a memory ceiling of %s was asked for, and no device that it may use has more than %s; write %s.. for all that there is", asked, most.Short(), memory.Floor)
	}
	return nil
}

// machine is what limits of CPU and memory are compared with; 0: not known.
type machine struct {
	cores  api.Milli
	memory api.Bytes
}

func thisMachine() machine {
	known := machine{cores: api.Milli(runtime.NumCPU()) * api.WholeDevice}
	var info unix.Sysinfo_t
	if unix.Sysinfo(&info) == nil {
		known.memory = api.Bytes(uint64(info.Totalram) * uint64(info.Unit))
	}
	return known
}

// checkMachine refuses a limit that the machine is below anyway: whoever asks for so much does not get it.
func checkMachine(spec api.WorkloadSpec, has machine) error {
	switch {
	case has.cores > 0 && spec.CPU > has.cores:
		return api.Invalid("a limit of %s cores was asked for, and this machine has %s; ask for at most that with --cpu, or leave it out", spec.CPU, has.cores)
	case has.memory > 0 && spec.Memory > has.memory:
		whole := has.memory / (1 << 20) * (1 << 20)
		return api.Invalid("a limit of %s of the machine's memory was asked for, and it has %s; ask for at most that with --host-memory, or leave it out", spec.Memory, whole.Short())
	}
	return nil
}

// inRole is a refusal that is of one role of a submission; empty: of its own processes.
func inRole(role string, err error) error {
	var known *api.Error
	if role == "" || !errors.As(err, &known) {
		return err
	}
	said := *known
	said.Message = "role " + role + ": " + said.Message
	return &said
}

// newName makes a name up from a program's: `train-3f2a`.
func (h *Host) newName(program string) string {
	base := advice.ProgramName(program)
	for size := 2; ; size++ {
		if name := base + "-" + randomHex(size); h.names[name] == nil {
			return name
		}
	}
}

// newUID makes a name that is never used again: random enough for that, short enough for a page and a socket's path.
func newUID() string { return "w" + randomHex(10) }

func randomHex(bytes int) string {
	random := make([]byte, bytes)
	_, _ = rand.Read(random) // never fails: it ends the program instead
	return hex.EncodeToString(random)
}

// codeIn is the code of a refusal.
func codeIn(err error) string {
	var known *api.Error
	errors.As(refusal(err), &known)
	return known.Code
}

// refusal makes an *api.Error of any error of a request.
func refusal(err error) error {
	var known *api.Error
	if errors.As(err, &known) {
		return known
	}
	return &api.Error{Code: api.CodeUnavailable, Message: fmt.Sprint(err)}
}
