package transport

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"tailrace.dev/tailrace/sharedlog"
)

// ErrUnavailable matches (errors.Is) errors that say nothing about the request: the other end
// cannot be reached, or disappeared meanwhile.
var ErrUnavailable = errors.New("not reachable")

type unavailable struct{ error }

func (u unavailable) Is(target error) bool { return target == ErrUnavailable }
func (u unavailable) Unwrap() error        { return u.error }

// toStatus converts an error of the log to a gRPC status.
func toStatus(err error) error {
	if err == nil {
		return nil
	}
	if _, ok := status.FromError(err); ok {
		return err
	}
	var e *sharedlog.Error
	if errors.As(err, &e) {
		return status.Error(codes.Aborted, fmt.Sprintf("kind %d %s", e.Kind, strings.TrimPrefix(err.Error(), e.Kind.String()+": ")))
	}
	return status.Error(codes.Unknown, err.Error())
}

// fromStatus is the inverse of toStatus.
func fromStatus(addr string, err error) error {
	if err == nil {
		return nil
	}
	s, ok := status.FromError(err)
	if !ok {
		return err // io.EOF
	}
	switch s.Code() {
	case codes.Aborted:
		var kind uint8
		if _, err := fmt.Sscanf(s.Message(), "kind %d ", &kind); err == nil {
			_, rest, _ := strings.Cut(s.Message()[len("kind "):], " ")
			return sharedlog.Errorf(sharedlog.Kind(kind), "%s", rest)
		}
	case codes.Unavailable, codes.Canceled, codes.DeadlineExceeded:
		return unavailable{fmt.Errorf("%s: %s", addr, plain(s.Message()))}
	case codes.FailedPrecondition:
		return sharedlog.Errorf(sharedlog.KindVersion, "%s: %s", addr, s.Message())
	}
	return fmt.Errorf("%s: %s", addr, s.Message())
}

// plain returns the network's part of an error message, without the text that gRPC wraps around it:
// our error already names the address and the action.
func plain(message string) string {
	if _, desc, ok := strings.Cut(message, "connection error: desc = "); ok {
		if text, err := strconv.Unquote(desc); err == nil {
			message = text
		}
	}
	message = strings.TrimPrefix(message, "transport: Error while dialing: ")
	switch {
	case strings.Contains(message, "error reading server preface") && strings.Contains(message, "use of closed network connection"):
		return "it takes connections and does not answer in time" // gRPC has closed the connection
	case strings.Contains(message, "error reading server preface"):
		return "something else answers there (" + message + ")"
	default:
		return message
	}
}
