"""The gateway's whole API, asked by a client that openapi-python-client has made of
gateway/openapi.yaml, with a real fleet behind it. The first unexpected answer ends it.

    GATEWAY=http://127.0.0.1:8088 KEY=... python3 tour.py
"""

import json
import os
import sys
import time
import uuid

from pushgateway import AuthenticatedClient, Client
from pushgateway.api.contract import contract
from pushgateway.api.inbox import inbox, mark_inbox, unread
from pushgateway.api.messages import limits, send, send_batch
from pushgateway.api.receipts import count_receivers, query, receipt, report, report_many, why_recipient
from pushgateway.api.topics import (cancel_fanout, close_topic, count_subscribers, create_named_topic, create_topic, leave, list_messages, list_topics, pause_fanout, resume_fanout,
                                    send_to_app, send_to_segment, send_to_topic, subscribe, subscribe_many, subscribers, topic, topics_of_user)
from pushgateway.api.users import (clicks, device, devices, limits_of_user, make_unsubscribe_link, make_user_token, messages_of_user, preferences, register_device,
                                   register_named_device, remove_device, set_preferences)
from pushgateway.models import (CreateTopicBody, Event, LinkRequest, MarkInboxBody, Message, Problem, Query, QuietHours, Registration,
                                RegistrationPlatform, Reported, SendToAppBody, SendToSegmentBody, SendToTopicBody, Status, SubscriptionForm, SubscriptionFormMode, TokenRequest, TopicForm, Wishes)
from pushgateway.types import File

APP, SERVICE, TYPE = "shop", "transactional", "tour"
PATIENCE = 150  # seconds for anything; not an expectation
REACHED, PULLING, WITHOUT, LEAVING = "tour-reached", "tour-pulling", "tour-without-device", "tour-leaving"

gateway = os.environ["GATEWAY"]
caller = AuthenticatedClient(base_url=gateway, token=os.environ["KEY"], timeout=PATIENCE)
tokens = [f"f{'0' * 21}:APA91b{n:060}" for n in (1, 2)]  # of a form that FCM's have


def ask(operation, *arguments, expect, client=caller, **named):
    """Does one operation and returns what it answered, which has a type of the contract. What
    is answered 503 is asked again, after the time that the answer names."""
    end = time.monotonic() + PATIENCE
    while (answer := operation.sync_detailed(*arguments, client=client, **named)).status_code == 503 and time.monotonic() < end:
        time.sleep(int(answer.headers["Retry-After"]))
    if answer.status_code != expect:
        sys.exit(f"{operation.__name__} is answered {answer.status_code} {answer.content.decode()}, want {expect}")
    return answer.parsed


def until(what, done):
    """Asks again until there is an answer that is true."""
    end = time.monotonic() + PATIENCE
    while not (got := done()):
        if time.monotonic() > end:
            sys.exit(f"it never came that {what}")
        time.sleep(0.1)
    return got


def want(what, got, wanted):
    if got != wanted:
        sys.exit(f"{what}: {got!r}, want {wanted!r}")


def uuid7():
    """Until Python has it, in 3.14 (RFC 9562)."""
    random, at = uuid.uuid4().int, time.time_ns() // 1_000_000
    return str(uuid.UUID(int=at << 80 | 0x7 << 76 | random & ((1 << 76) - 1) & ~(0xC << 60) | 0x8 << 60))


def lines(*objects):
    return File(payload="".join(json.dumps(o) + "\n" for o in objects).encode())


def final(of):
    return until(f"{of} is final", lambda: (r := ask(receipt, of, expect=200)).final and r)


def contract_and_errors():
    assert "pushgateway" in contract.sync_detailed(client=Client(base_url=gateway)).content.decode()
    problem = ask(limits, client=AuthenticatedClient(base_url=gateway, token="nobody's"), expect=401)
    assert isinstance(problem, Problem) and problem.code == "unauthorized"
    problem = ask(send, body=Message(app="unknown", service_type=SERVICE, user_id=REACHED), expect=403)
    assert isinstance(problem, Problem)
    want("the sender", ask(limits, expect=200).sender, "tour")


def people():
    """Devices and preferences, by a key and by the token of a user."""
    first = ask(register_device, REACHED, body=Registration(app=APP, platform=RegistrationPlatform.FCM, token=tokens[0], locale="en"), expect=202)
    until("the device is there", lambda: [d for d in ask(devices, REACHED, expect=200).devices if d.hash_ == first.device])
    want("its app", ask(device, REACHED, first.device, expect=200).app, APP)

    passed = ask(make_user_token, REACHED, body=TokenRequest(app=APP, expires_in=600), expect=201)
    user = AuthenticatedClient(base_url=gateway, token=passed.token)
    second = ask(register_device, REACHED, body=Registration(platform=RegistrationPlatform.FCM, token=tokens[1]), client=user, expect=202)
    until("both devices are there", lambda: len(ask(devices, REACHED, client=user, expect=200).devices) == 2)
    ask(register_named_device, REACHED, second.device, body=Registration(platform=RegistrationPlatform.FCM, token=tokens[1], locale="de"), client=user, expect=202)
    until("its locale is there", lambda: ask(device, REACHED, second.device, client=user, expect=200).locale == "de")
    ask(remove_device, REACHED, second.device, client=user, expect=202)
    until("one is left", lambda: len(ask(devices, REACHED, client=user, expect=200).devices) == 1)
    ask(devices, PULLING, client=user, expect=403)

    quiet = QuietHours(from_="22:00", to="07:00", types=["nightly"])
    ask(set_preferences, REACHED, body=Wishes(opt_out_types=["promo"], quiet_hours=[quiet]), client=user, expect=202)
    got = until("the preferences are there", lambda: (p := ask(preferences, REACHED, client=user, expect=200)).opt_out_types and p)
    want("preferences", (got.user_id, got.opt_out_types, got.quiet_hours[0].from_, got.unreadable), (REACHED, ["promo"], "22:00", False))

    link = ask(make_unsubscribe_link, REACHED, body=LinkRequest(app=APP, type_="letters"), expect=201)
    clicked = Client(base_url=gateway).get_httpx_client().post(link.path, data={"List-Unsubscribe": "One-Click"})  # as mail providers do
    want("the click", (clicked.status_code, clicked.json()), (200, {"unsubscribed": "letters"}))
    until("the click counts", lambda: "letters" in ask(preferences, REACHED, expect=200).opt_out_types)
    want("limits", ask(limits_of_user, REACHED, app=APP, type_=TYPE, expect=200).user_id, REACHED)


def message(user, **more):
    m = Message(app=APP, service_type=SERVICE, user_id=user)
    m.additional_properties = {"type": TYPE, "title": "On its way", **more}
    return m


def messages():
    """One message, its repeats, many, and what became of each."""
    accepted = ask(send, body=message(REACHED), idempotency_key="tour-1", expect=202)
    again = ask(send, body=message(REACHED), idempotency_key="tour-1", expect=202)
    want("the id of a repeat", again.id, accepted.id)
    got = final(accepted.receipt)
    want("its end", (got.status, len(got.devices), got.receiver.user_id), (Status.DELIVERED, 1, REACHED))
    why = ask(why_recipient, accepted.id, REACHED, expect=200)
    want("why", (why.status.value, why.final), ("DELIVERED", True))

    one, two = uuid7(), uuid7()
    batch = ask(send_batch, body=lines(message(REACHED).to_dict() | {"id": one}, message(REACHED, type="promo").to_dict() | {"id": two}), expect=202)
    want("the batch", (batch.accepted, batch.failed), (2, 0))
    partly = ask(send_batch, body=lines(message(REACHED).to_dict() | {"id": one}, {"id": uuid7(), "app": APP}), expect=207)
    want("a batch with a mistake", (partly.accepted, partly.failed), (1, 1))
    receipts = [r.receipt for r in batch.results]
    until("both are final", lambda: all(r.final for r in ask(query, body=Query(receipts=receipts), expect=200).results))
    want("their ends", [r.status for r in ask(query, body=Query(receipts=receipts), expect=200).results], [Status.DELIVERED, Status.FAILED])

    noted = ask(messages_of_user, REACHED, app=APP, limit=2, expect=200)
    want("whose they are", sorted((m.id, m.status.value) for m in noted.messages), sorted([(one, "DELIVERED"), (two, "FAILED")]))
    before = ask(messages_of_user, REACHED, after=noted.next_, expect=200).messages
    want("what came before", [(m.id, m.sender_id, len(m.devices)) for m in before], [(accepted.id, "tour", 1)])

    kept = ask(send, body=message(WITHOUT, data={"order": "17"}, clicks=True), expect=202)
    want("without a device", final(kept.receipt).state.value, "INBOX")


def fanouts():
    """A topic, its subscribers, a message to all of them, and the inboxes of those who pull."""
    ask(create_topic, body=CreateTopicBody(app=APP, service_type=SERVICE, name="tour-other"), expect=201)
    made = ask(create_named_topic, "tour-snow", body=TopicForm.from_dict({"app": APP, "service_type": SERVICE, "modes": ["push", "pull"]}), expect=201)
    want("the topic", (made.name, ask(topic, "tour-snow", expect=200).app), ("tour-snow", APP))
    assert {"tour-snow", "tour-other"} <= {t.name for t in ask(list_topics, expect=200).topics}
    ask(subscribe, "tour-snow", REACHED, body=SubscriptionForm(mode=SubscriptionFormMode.PUSH), expect=200)
    many = ask(subscribe_many, "tour-snow", body=lines(*({"user_id": u, "mode": m} for u, m in ((PULLING, "pull"), (WITHOUT, "push"), (LEAVING, "push")))), expect=200)
    want("the batch of subscribers", (many.accepted, many.failed), (3, 0))
    ask(leave, "tour-snow", LEAVING, expect=200)
    want("who is subscribed", {s.user_id for s in ask(subscribers, "tour-snow", expect=200).subscriptions}, {REACHED, PULLING, WITHOUT})
    how_many = ask(count_subscribers, "tour-snow", expect=200)
    want("how many", (how_many.push, how_many.pull, how_many.whole), (2, 1, True))
    want("to what", [s.topic for s in ask(topics_of_user, PULLING, expect=200).subscriptions], ["tour-snow"])

    def post(name):
        return ask(send_to_topic, name, body=SendToTopicBody.from_dict({"type": TYPE, "title": "Snow until Sunday"}), idempotency_key=uuid7(), expect=202)

    sent = post("tour-snow")
    ask(pause_fanout, sent.receipt, expect=202)
    ask(resume_fanout, sent.receipt, expect=202)
    got = final(sent.receipt)
    want("the fan-out", (got.topic, got.fanout.emitted, got.fanout.skipped.to_dict()), ("tour-snow", 2, {"pull": 1, "left": 1}))
    for user, status in ((REACHED, "DELIVERED"), (WITHOUT, "INBOX"), (PULLING, "NOT_SENT"), (LEAVING, "NOT_SENT")):
        why = until(f"it is known what became of {user}'s", lambda: (w := ask(why_recipient, sent.receipt, user, expect=200)).final and w)
        if status not in (why.status.value, why.steps[-1].state):
            sys.exit(f"{user}: {why}, want {status}")
    counted = ask(count_receivers, sent.receipt, expect=200)
    want("what became of them", (counted.counted, counted.whole, counted.states.to_dict()), (2, True, {"DELIVERED": 1, "INBOX": 1}))
    listed = ask(list_messages, "tour-snow", expect=200).messages
    want("the topic's messages", [(m.sender, m.expires_at > m.accepted_at) for m in listed], [("tour", True)])
    want("by its id", ask(count_receivers, listed[0].id, expect=200).counted, 2)
    ask(cancel_fanout, post("tour-other").receipt, expect=202)

    until("it is in the inbox", lambda: ask(inbox, PULLING, app=APP, expect=200).items)
    read = ask(inbox, PULLING, app=APP, expect=200)
    want("the inbox", [(i.topic, i.content.title, i.read) for i in read.items], [("tour-snow", "Snow until Sunday", False)])
    want("unread", ask(unread, PULLING, app=APP, expect=200).unread, 1)
    ask(mark_inbox, PULLING, body=MarkInboxBody(app=APP, read=[read.items[0].cursor]), expect=200)
    want("unread", ask(unread, PULLING, app=APP, expect=200).unread, 0)
    own = ask(inbox, WITHOUT, app=APP, expect=200).items
    want("the inbox without a device", sorted(i.content.title for i in own), ["On its way", "Snow until Sunday"])

    hidden = {"app": APP, "service_type": SERVICE, "metadata": {"security": "confidential", "publishers": ["tour"]}}
    want("the confidential topic", ask(create_named_topic, "tour-results", body=TopicForm.from_dict(hidden), expect=201).metadata.publishers, ["tour"])
    ask(subscribe, "tour-results", REACHED, body=SubscriptionForm(mode=SubscriptionFormMode.PUSH), expect=200)
    want("the confidential message", final(post("tour-results").receipt).fanout.emitted, 1)
    passed = ask(make_user_token, REACHED, body=TokenRequest(app=APP, expires_in=600), expect=201)
    for who, title, left_out in ((caller, "New message", True), (AuthenticatedClient(base_url=gateway, token=passed.token), "Snow until Sunday", False)):
        shown = [(i.topic, i.content.title, i.confidential, bool(i.sealed)) for i in ask(inbox, REACHED, client=who, app=APP, expect=200).items]
        want("the inbox of who is pushed", shown, [("tour-results", title, True, left_out)])
    token = next(i.content.data["pf_click"] for i in own if i.content.title == "On its way")
    nobody = Client(base_url=gateway)
    for _ in range(2):
        want("the report", ask(report, client=nobody, body=Reported(token=token, event=Event.CLICKED), expect=200).event, Event.CLICKED)
    ask(report, client=nobody, body=Reported(token=token[:-8] + "AAAAAAAA", event=Event.CLICKED), expect=404)
    again, other = {"token": token, "event": "CLICKED"}, {"token": token[:-8] + "AAAAAAAA", "event": "CLICKED"}
    reported = ask(report_many, client=nobody, body=lines(again, again), expect=200)
    want("the reports", (reported.accepted, [r.event for r in reported.results]), (2, [Event.CLICKED, Event.CLICKED]))
    reported = ask(report_many, client=nobody, body=lines(again, other), expect=207)
    want("reports with a mistake", (reported.accepted, reported.failed), (1, 1))
    clicked = ask(clicks, WITHOUT, app=APP, expect=200)
    want("clicks", (clicked.user_id, [(c.type_, c.clicked) for c in clicked.counts]), (WITHOUT, [(TYPE, 1)]))
    ask(close_topic, "tour-other", expect=200)


def broadcasts():
    """A message to all users of an app: to the one who has a device, and not to one who never had."""
    body = SendToAppBody.from_dict({"type": TYPE, "service_type": SERVICE, "title": "New terms"})
    why = None

    def reached():
        # Whoever is noted after a message was accepted does not get it.
        nonlocal why
        sent = ask(send_to_app, APP, body=body, idempotency_key=uuid7(), expect=202)
        got = final(sent.receipt)
        want("the audience", (got.fanout.audience.value, got.fanout.chunks.all_, got.topic), ("app", got.fanout.chunks.done, got.topic))
        why = ask(why_recipient, sent.receipt, PULLING, expect=200)
        return got.fanout.emitted and sent

    sent = until("somebody is noted as a user of the app", reached)
    want("who never had a device", (why.status.value, why.reason), ("NOT_SENT", "not_in_audience"))
    until("it is delivered", lambda: ask(why_recipient, sent.receipt, REACHED, expect=200).status.value == "DELIVERED")


def to_a_segment():
    """A message to those users of an app who are in a segment: to the one in it, to nobody in another, and there is no third."""
    body = SendToSegmentBody.from_dict({"type": TYPE, "service_type": SERVICE, "title": "Welcome"})
    for segment, emitted in (("new", 1), ("gone", 0)):
        sent = ask(send_to_segment, APP, "lifecycle", segment, body=body, idempotency_key=uuid7(), expect=202)
        got = final(sent.receipt)
        want(f"who is in {segment}", (got.fanout.audience.value, got.segment, got.fanout.emitted), ("segment", f"lifecycle/{segment}", emitted))
        if emitted:
            until("it is delivered", lambda: ask(why_recipient, sent.receipt, REACHED, expect=200).status.value == "DELIVERED")
    ask(send_to_segment, APP, "lifecycle", "unheard", body=body, expect=404)


if __name__ == "__main__":
    for stop in (contract_and_errors, people, messages, fanouts, broadcasts, to_a_segment):
        stop()
        print(f"{stop.__name__}: done", flush=True)
