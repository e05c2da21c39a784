"""Campaigns: answered with a uuid, stored and counted, and not run."""

from pushsdk.emulator import Fault

SPRING = {
    "name": "Spring",
    "segment": {"query": "SELECT user_id FROM users", "primaryKey": "user_id"},
    "schedule": {"type": "START_NOW"},
    "message": {"title": {"en": "Hi"}, "iosEnabled": True},
}


async def test_a_campaign_is_stored_under_the_uuid_of_its_response_and_pushes_to_no_user(wire, emulator):
    uuid = (await wire.send(SPRING, path="/v1/campaigns")).json["uuid"]
    (campaign,) = emulator.campaigns
    assert campaign.uuid == uuid
    assert campaign.request == SPRING
    assert emulator.users() == {}
    (request,) = (await wire.get(f"/requests?search=campaign:{uuid.upper()}"))["requests"]
    assert request["campaign"] == uuid
    assert (await wire.get("/inboxes"))[0]["campaigns"] == 1
    assert emulator.totals()["campaigns"] == 1


async def test_a_campaign_that_a_fault_refuses_does_not_exist(wire, emulator):
    emulator.set_faults([Fault.status(503)])
    assert (await wire.send(SPRING, path="/v1/campaigns")).status == 503
    assert emulator.campaigns == ()
    assert (await wire.get("/requests"))["requests"][0]["campaign"] is None
    assert emulator.totals()["campaigns"] == 0
