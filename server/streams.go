package server

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"

	"github.com/aliquot-dev/aliquot/api"
)

// keepAlive is how often a silent stream of events says that it is there.
const keepAlive = 15 * time.Second

func (r *routes) streams(service huma.API) {
	stream(service, "/v1/workloads/{name}/logs", "logs", "What a workload printed, as it is written", "text/plain; charset=utf-8", func(ctx context.Context, in *struct {
		Named
		Follow bool `query:"follow" doc:"go on until it is over"`
		Tail   int  `query:"tail" minimum:"-1" default:"-1" doc:"of what is there now only the last so many lines; -1: all"`
	}, to io.Writer,
	) error {
		part := LogPart{Follow: in.Follow}
		if in.Tail >= 0 {
			part.Tail = &in.Tail
		}
		return r.host.Logs(ctx, callerOf(ctx), in.Name, part, to)
	})
	stream(service, "/v1/record", "record", "The engine's event log from now on: a snapshot, then every step", "text/plain; charset=utf-8", func(ctx context.Context, _ *struct{}, to io.Writer) error {
		return r.host.Record(ctx, callerOf(ctx), to)
	})
	stream(service, "/v1/events", "events", "Changes, as server-sent events", "text/event-stream", func(ctx context.Context, in *struct {
		Since uint64 `query:"since" doc:"number of the last event known: what came after it follows first, as far as it is kept (4,096 events, none from before the server started); 0 or none: from now on"`
		Last  string `header:"Last-Event-ID" doc:"the same, as browsers send it"`
	}, to io.Writer,
	) error {
		since := in.Since
		if since == 0 && in.Last != "" {
			if _, err := fmt.Sscan(in.Last, &since); err != nil {
				return api.Invalid("Last-Event-ID %q is not a number", in.Last)
			}
		}
		return r.events(ctx, since, to)
	})
}

// events writes events as they come. Each write is one whole event or one comment.
func (r *routes) events(ctx context.Context, since uint64, to io.Writer) error {
	events, failed := make(chan api.Event, 64), make(chan error, 1)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		failed <- r.host.Listen(ctx, since, func(event api.Event) error {
			select {
			case events <- event:
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		})
	}()
	if _, err := io.WriteString(to, ": listening\n\n"); err != nil {
		return err
	}
	alive := time.NewTicker(keepAlive)
	defer alive.Stop()
	for {
		var text string
		select {
		case event := <-events:
			data, err := json.Marshal(event)
			if err != nil {
				return err
			}
			text = fmt.Sprintf("id: %d\nevent: %s\ndata: %s\n\n", event.Seq, event.Kind, data)
		case <-alive.C:
			text = ": still here\n\n"
		case err := <-failed:
			return err
		}
		if _, err := io.WriteString(to, text); err != nil {
			return err
		}
	}
}

// stream registers an operation that writes as long as it likes. An error before the first byte is a problem; after it the
// connection is cut, so that nobody takes half an answer for a whole one.
func stream[In any](service huma.API, path, id, summary, media string, run func(context.Context, *In, io.Writer) error) {
	huma.Register(service, huma.Operation{
		OperationID: id, Method: http.MethodGet, Path: path, Summary: summary,
		Responses: map[string]*huma.Response{"200": {Description: summary, Content: map[string]*huma.MediaType{media: {Schema: &huma.Schema{Type: huma.TypeString}}}}},
		Errors:    []int{http.StatusUnauthorized, http.StatusForbidden, http.StatusNotFound, http.StatusConflict},
	}, func(_ context.Context, in *In) (*huma.StreamResponse, error) {
		return &huma.StreamResponse{Body: func(ctx huma.Context) {
			request, response := humago.Unwrap(ctx)
			out := &flushing{to: response, control: http.NewResponseController(response), media: media}
			err := run(request.Context(), in, out)
			switch {
			case err == nil:
				out.begin()
			case !out.begun:
				refused := refusal(err).(*problem)
				writeProblem(response, refused.Status, refused.Code, refused.Detail)
			default:
				panic(http.ErrAbortHandler)
			}
		}}, nil
	})
}

// flushing sends everything at once.
type flushing struct {
	to      http.ResponseWriter
	control *http.ResponseController
	media   string
	begun   bool
}

func (f *flushing) begin() {
	if !f.begun {
		f.begun = true
		f.to.Header().Set("Content-Type", f.media)
		f.to.Header().Set("Cache-Control", "no-store")
		f.to.WriteHeader(http.StatusOK)
	}
}

func (f *flushing) Write(data []byte) (int, error) {
	f.begin()
	n, err := f.to.Write(data)
	if err == nil {
		err = f.control.Flush()
	}
	return n, err
}
