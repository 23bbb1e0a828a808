package server

import (
	"context"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"
	"golang.org/x/sys/unix"

	"github.com/aliquot-dev/aliquot/api"
)

// Limits of request bodies.
const (
	bodyLimit = 64 << 10
	// JSON takes six bytes for a control character and, where one beside it is not UTF-8, four thirds of one more in base64.
	submitLimit = 8*api.MaxCommandBytes + bodyLimit
	policyLimit = 6*api.MaxPolicyBytes + bodyLimit
)

// bodyPatience is how long a request's body may take to come: on a machine that is busy the largest takes many seconds.
const bodyPatience = 2 * time.Minute

// routes are the operations on a host.
type routes struct {
	host Host
}

// The parameters that operations share.
type (
	// Named is exported for huma, which looks for parameters in exported fields only.
	Named struct {
		Name string `path:"name" doc:"name or UID of a workload" maxLength:"128"`
	}
	// Body is a request's or an answer's.
	Body[T any]  struct{ Body T }
	done         struct{}
	grantedGrace struct {
		Grace api.Duration `json:"grace,omitempty" doc:"time between SIGTERM and SIGKILL, such as 10s"`
	}
	wantedSignal struct {
		Signal string `json:"signal" doc:"name of the signal, such as SIGUSR1"`
	}
)

// newRoutes makes the handler of all operations, for requests whose caller is known.
func newRoutes(config Config) http.Handler {
	mux := http.NewServeMux()
	settings := huma.DefaultConfig("Aliquot", config.Version)
	settings.Info.Description = "Shares of GPUs: submit workloads, watch them, set queues. Errors are RFC 9457."
	settings.DocsPath, settings.SchemasPath, settings.CreateHooks = "", "", nil
	settings.Transformers = append(settings.Transformers, plain)
	// On the socket the kernel says who asks; over HTTP it is the token of the server's user.
	settings.Components.SecuritySchemes = map[string]*huma.SecurityScheme{"token": {Type: "http", Scheme: "bearer", Description: "over HTTP alone; on the Unix socket nobody needs it"}}
	settings.Security = []map[string][]string{{"token": {}}, {}}
	settings.FieldsOptionalByDefault = true // the host says what is missing, and why
	service := humago.New(mux, settings)
	r := &routes{config.Host}
	r.workloads(service)
	r.queues(service)
	r.policy(service)
	r.streams(service)
	operation(service, http.MethodGet, "/v1/info", "info", "What this server is", 0, func(ctx context.Context, _ *struct{}) (*Body[api.Info], error) {
		info, err := r.host.Info(ctx, callerOf(ctx))
		if config.HTTP != nil {
			info.HTTP = config.HTTP.Addr().String()
		}
		info.Warnings = append(info.Warnings, config.Warnings...)
		return answer(info, err)
	})
	operation(service, http.MethodGet, "/v1/devices", "devices", "The devices with their use now", 0, func(ctx context.Context, _ *struct{}) (*Body[[]api.Device], error) {
		return answer(r.host.Devices(ctx))
	})
	mux.Handle("GET /metrics", metricsHandler(config))
	return orProblem(mux)
}

// operation registers one operation.
func operation[In, Out any](service huma.API, method, path, id, summary string, limit int64, run func(context.Context, *In) (*Out, error)) {
	if limit == 0 {
		limit = bodyLimit
	}
	huma.Register(service, huma.Operation{
		OperationID: id, Method: method, Path: path, Summary: summary, MaxBodyBytes: limit, BodyReadTimeout: bodyPatience, DefaultStatus: http.StatusOK,
		Errors: []int{http.StatusUnauthorized, http.StatusForbidden, http.StatusNotFound, http.StatusConflict, http.StatusServiceUnavailable},
	}, run)
}

func answer[T any](value T, err error) (*Body[T], error) {
	if err != nil {
		return nil, refusal(err)
	}
	return &Body[T]{value}, nil
}

func (r *routes) workloads(service huma.API) {
	operation(service, http.MethodGet, "/v1/workloads", "list-workloads", "The workloads, oldest first", 0, func(ctx context.Context, in *struct {
		Ended bool `query:"ended" doc:"also those that are over"`
	},
	) (*Body[[]api.Workload], error) {
		list, err := r.host.Workloads(ctx, in.Ended)
		for i := range list {
			list[i] = hide(list[i])
		}
		return answer(list, err)
	})
	operation(service, http.MethodPost, "/v1/workloads", "submit", "Submit a workload", submitLimit, func(ctx context.Context, in *Body[api.WorkloadSpec]) (*Body[api.Workload], error) {
		return answerWork(r.host.Submit(ctx, callerOf(ctx), in.Body))
	})
	operation(service, http.MethodPost, "/v1/plan", "plan", "What would happen if a workload were submitted now; changes nothing", submitLimit, func(ctx context.Context, in *Body[api.WorkloadSpec]) (*Body[api.Plan], error) {
		return answer(r.host.Plan(ctx, callerOf(ctx), in.Body))
	})
	operation(service, http.MethodGet, "/v1/workloads/{name}", "workload", "One workload; with while once its phase is none of these", 0, func(ctx context.Context, in *struct {
		Named
		While []api.Phase `query:"while" doc:"phases to wait through"`
	},
	) (*Body[api.Workload], error) {
		work, err := r.host.Wait(ctx, in.Name, in.While...)
		if who := callerOf(ctx); who.UID != work.UserID {
			work = hide(work)
		}
		return answer(work, err)
	})
	operation(service, http.MethodGet, "/v1/workloads/{name}/why", "why", "Why a workload waits, or what became of it", 0, func(ctx context.Context, in *Named) (*Body[api.Why], error) {
		return answer(r.host.Why(ctx, in.Name))
	})
	operation(service, http.MethodPost, "/v1/workloads/{name}/stop", "stop", "End a workload", 0, func(ctx context.Context, in *struct {
		Named
		Body grantedGrace
	},
	) (*Body[api.Workload], error) {
		return answerWork(r.host.Stop(ctx, callerOf(ctx), in.Name, in.Body.Grace))
	})
	operation(service, http.MethodPost, "/v1/workloads/{name}/signal", "signal", "Send a signal to a workload's processes", 0, func(ctx context.Context, in *struct {
		Named
		Body wantedSignal
	},
	) (*done, error) {
		sig, err := parseSignal(in.Body.Signal)
		if err == nil {
			err = r.host.Signal(ctx, callerOf(ctx), in.Name, sig)
		}
		return nil, refusal(err)
	})
	operation(service, http.MethodPost, "/v1/workloads/{name}/checkpoint", "checkpoint", "Say that a workload has just saved what it has done", 0, func(ctx context.Context, in *Named) (*Body[api.Workload], error) {
		return answerWork(r.host.Checkpoint(ctx, callerOf(ctx), in.Name))
	})
	operation(service, http.MethodPost, "/v1/workloads/{name}/resize", "resize", "Give a workload another share, in place", 0, func(ctx context.Context, in *struct {
		Named
		Body ShareChange
	},
	) (*Body[api.Workload], error) {
		return answerWork(r.host.Resize(ctx, callerOf(ctx), in.Name, in.Body))
	})
}

func (r *routes) queues(service huma.API) {
	operation(service, http.MethodGet, "/v1/queues", "list-queues", "The queues with what they hold", 0, func(ctx context.Context, _ *struct{}) (*Body[[]api.Queue], error) {
		return answer(r.host.Queues(ctx))
	})
	operation(service, http.MethodPut, "/v1/queues/{name}", "set-queue", "Make or change a queue", 0, func(ctx context.Context, in *struct {
		Name string `path:"name" doc:"name of the queue" maxLength:"128"`
		Body api.QueueSpec
	},
	) (*Body[api.Queue], error) {
		if in.Body.Name == "" {
			in.Body.Name = in.Name
		}
		if in.Body.Name != in.Name {
			return nil, refusal(api.Invalid("the path names queue %s and the body %s: a queue keeps its name", in.Name, in.Body.Name))
		}
		return answer(r.host.SetQueue(ctx, callerOf(ctx), in.Body))
	})
	operation(service, http.MethodDelete, "/v1/queues/{name}", "remove-queue", "Remove a queue that holds nothing", 0, func(ctx context.Context, in *struct {
		Name string `path:"name" doc:"name of the queue" maxLength:"128"`
	},
	) (*done, error) {
		return nil, refusal(r.host.RemoveQueue(ctx, callerOf(ctx), in.Name))
	})
}

func (r *routes) policy(service huma.API) {
	operation(service, http.MethodGet, "/v1/policy", "policy", "The policy file that is set, and what holds now; without a name none is", 0, func(ctx context.Context, _ *struct{}) (*Body[api.Policy], error) {
		return answer(r.host.Policy(ctx))
	})
	operation(service, http.MethodPut, "/v1/policy", "set-policy", "Have a policy file hold", policyLimit, func(ctx context.Context, in *Body[api.Policy]) (*Body[api.Policy], error) {
		return answer(r.host.SetPolicy(ctx, callerOf(ctx), in.Body))
	})
	operation(service, http.MethodDelete, "/v1/policy", "remove-policy", "Have no policy file hold any more", 0, func(ctx context.Context, _ *struct{}) (*done, error) {
		return nil, refusal(r.host.RemovePolicy(ctx, callerOf(ctx)))
	})
}

// hide leaves out of a workload what may hold secrets: its environment. Only its own user is shown that, and only when asking for
// this one workload.
func hide(work api.Workload) api.Workload {
	work.Spec.Env = nil
	return work
}

// answerWork answers with what has become of a workload by what was asked.
func answerWork(work api.Workload, err error) (*Body[api.Workload], error) {
	return answer(hide(work), err)
}

// parseSignal reads a signal's name, with or without SIG, or its number.
func parseSignal(text string) (syscall.Signal, error) {
	name := strings.ToUpper(strings.TrimSpace(text))
	if number, err := strconv.Atoi(name); err == nil && number > 0 && number <= 64 {
		return syscall.Signal(number), nil
	}
	if !strings.HasPrefix(name, "SIG") {
		name = "SIG" + name
	}
	if sig := unix.SignalNum(name); sig != 0 {
		return sig, nil
	}
	return 0, api.Invalid("%s", fmt.Sprintf("the signal %q is not known: name one, for example SIGUSR1", text))
}
