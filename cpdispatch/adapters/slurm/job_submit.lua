-- Holds new jobs for cpdispatch while its driver lives, and marks them.
-- Made by `cpdispatch slurm plugin`; copy it beside slurm.conf, which needs JobSubmitPlugins=lua.

local ALIVE = "@ALIVE@"
local MARK = "@MARK@"
local KEPT = "@KEPT@"
local STALE_S = @STALE@
local DRIVER = @USER@

-- Whether the driver has given a sign of life lately, the one partition that it is for, and the
-- jobs that others hold, with a space before and after each.
local function driving()
   local file = io.open(ALIVE, "r")
   if file == nil then
      return false, "", ""
   end
   local seconds = tonumber(file:read("*l") or "")
   local partition = file:read("*l") or ""
   local kept = file:read("*l") or ""
   file:close()
   -- One from the future is as little worth as an old one: the clock was set back.
   return seconds ~= nil and math.abs(os.time() - seconds) <= STALE_S, partition, kept
end

local function default_partition(part_list)
   for name, partition in pairs(part_list) do
      if partition.flag_default == 1 then
         return name
      end
   end
   return ""
end

-- A comment without the word before it that tells of a hold by others, and whether that was there.
local function without_word(comment)
   local word, rest = string.match(comment or "", "^(%S*) ?(.*)$")
   if word == KEPT then
      return rest, true
   end
   return comment or "", false
end

function slurm_job_submit(job_desc, part_list, submit_uid)
   local alive, partition = driving()
   -- A job that its user holds stays the user's; one that is held cannot start immediately.
   if not alive or job_desc.priority == 0 or job_desc.immediate == 1 then
      return slurm.SUCCESS
   end
   if partition ~= "" and (job_desc.partition or default_partition(part_list)) ~= partition then
      return slurm.SUCCESS
   end
   local comment, named = without_word(job_desc.comment)
   if named then -- nobody else holds it
      job_desc.comment = comment == "" and " " or comment
   end
   job_desc.priority = 0
   job_desc.admin_comment = MARK .. (job_desc.req_nodes and " " .. job_desc.req_nodes or "")
   return slurm.SUCCESS
end

function slurm_job_modify(job_desc, job_rec, part_list, modify_uid)
   if string.match(job_rec.admin_comment or "", "^%S*") ~= MARK then
      return slurm.SUCCESS
   end
   local said = job_desc.admin_comment
   -- An administrator who writes a comment replaces the mark: it stays before that.
   if said ~= nil and string.match(said, "^%S*") ~= MARK then
      local nodes = string.match(job_rec.admin_comment, "^%S* (%S*)") or ""
      job_desc.admin_comment = MARK .. " " .. nodes .. " " .. said
   end
   local priority, nice, held = job_desc.priority, job_desc.nice, job_rec.priority == 0
   local ordered = priority ~= nil and priority ~= slurm.NO_VAL
   -- Slurm gives a held job a priority, and so releases it, when it is made more or less nice.
   local asked = ordered or (held and nice ~= nil and nice ~= slurm.NO_VAL)
   local _, others = without_word(job_rec.comment)
   if asked and held and not others and modify_uid ~= 0 and modify_uid ~= DRIVER then
      local alive, _, kept = driving()
      -- Slurm's numbers are floats to later releases of Lua: joined to a text they end in ".0".
      if alive and not string.find(kept, string.format(" %d ", job_rec.job_id), 1, true) then
         slurm.log_info("job %u: held and released by cpdispatch alone", job_rec.job_id)
         return slurm.ERROR
      end
   end
   -- The driver names nodes with each hold, and where it sends a job to them; nobody else does.
   local driver = modify_uid == DRIVER and job_desc.req_nodes ~= nil
   if driver and others and held and ordered and priority ~= 0 then
      slurm.log_info("job %u: others have held it since it was decided", job_rec.job_id)
      return slurm.ERROR
   end
   -- Slurm takes the comment also where it then denies a user the release: the word stays, and the
   -- driver takes it away when it holds the job that was released.
   local hold = ordered and priority == 0
   if asked and (hold or modify_uid == 0 or driver) then
      others = hold and not driver
   end
   -- It is told in the job's own comment: who may hold it may change that, too.
   local now = job_desc.comment or job_rec.comment or ""
   local comment = (others and KEPT .. " " or "") .. without_word(now)
   if comment ~= now then
      job_desc.comment = comment == "" and " " or comment -- an empty one changes nothing
   end
   return slurm.SUCCESS
end

return slurm.SUCCESS
