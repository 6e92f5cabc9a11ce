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

// ErrUnavailable is what errors satisfy (errors.Is) that say nothing about the
// request: the other end cannot be reached, or went away in between.
var ErrUnavailable = errors.New("not reachable")

type unavailable struct{ error }

func (u unavailable) Is(target error) bool { return target == ErrUnavailable }
func (u unavailable) Unwrap() error        { return u.error }

// toStatus makes an error of the log one that travels.
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

// fromStatus is its inverse.
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

// plain is what the network said, without what gRPC wraps around it: the place is
// named already, and so is what was tried.
func plain(message string) string {
	if _, desc, ok := strings.Cut(message, "connection error: desc = "); ok {
		if text, err := strconv.Unquote(desc); err == nil {
			message = text
		}
	}
	message = strings.TrimPrefix(message, "transport: Error while dialing: ")
	switch {
	case strings.Contains(message, "error reading server preface") && strings.Contains(message, "use of closed network connection"):
		return "it takes connections and does not answer in time" // gRPC has given it up
	case strings.Contains(message, "error reading server preface"):
		return "something else answers there (" + message + ")"
	default:
		return message
	}
}
